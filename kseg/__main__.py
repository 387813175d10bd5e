"""`python -m kseg`: the command line."""

from __future__ import annotations

import sys

from kseg.cli.main import main

sys.exit(main())

"""Tests of kseg; the folders mirror the package."""

"""Files for spark-submit: the jobs of the command line, on the session that spark-submit sets up."""

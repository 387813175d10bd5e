"""The command line: a module for each verb, which parses, calls the library and renders."""

"""Signed apt repositories of stub packages that bear the real names and versions."""

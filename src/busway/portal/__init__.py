"""The web page: HTML, CSS and ES modules that `http/portal.py` serves as they are."""

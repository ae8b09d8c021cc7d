"""A folder for `PYTHONPATH`: see `acl.py`."""

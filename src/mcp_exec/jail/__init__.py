"""[init, payload] The mechanisms of the jail; standard library only, any CPython >= 3.11."""

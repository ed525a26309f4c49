"""Small programs, each in its contender's own environment, that answer lines of JSON: code and stdin -> outcome."""

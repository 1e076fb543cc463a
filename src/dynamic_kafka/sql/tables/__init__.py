"""Tables: what CREATE TABLE says of columns and options, its types, and the table that follows from it, checked."""

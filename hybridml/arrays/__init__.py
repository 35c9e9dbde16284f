"""Functions of the array namespace that are more than a row of the operation table: compositions of rows."""

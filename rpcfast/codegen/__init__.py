"""Documents and clients made from `ProcedureSpec`s; floor 2: describes procedures, calls none."""

"""Commands of operators, with a file for each noun. What they do is in the folders beside this one."""

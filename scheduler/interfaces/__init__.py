"""What people and machines touch: the command line."""

"""Running `.om` models on Ascend NPUs through pyACL."""

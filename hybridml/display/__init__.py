"""How things show themselves: tensors, and reports as text, HTML and JSON, from templates."""

"""The shown form of tensors and reports: text, HTML and JSON, from the templates of `templates/`.

tensors.py  `repr` of a tensor, and its table for notebooks
reports.py  the base class of what `compare`, `explain`, `audit` and `profile` return
tables.py   their tables and figures
drawing.py  operations in groups, as boxes and arrows
layers.py   where the boxes stand
"""

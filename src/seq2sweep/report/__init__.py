"""Results for people: Table 3 as Markdown, and one page of HTML with every figure in it.

Takes plain dictionaries (the JSON files of the stages), gives text; needs jinja2 and matplotlib.
"""

"""Views of placed graphs and steps: pictures, plain data, and formats of other tools."""

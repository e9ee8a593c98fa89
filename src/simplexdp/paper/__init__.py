"""The paper's ring: recipes, published numbers, tables, figures and the report of results."""

"""Networks that exist for rows of the paper's tables."""

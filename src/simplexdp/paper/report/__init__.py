"""Pages and plots: what the results say, for people, for papers and for the guide."""

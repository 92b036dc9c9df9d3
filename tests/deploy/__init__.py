"""As deployed: the files that are shipped for production, checked and run as they stand."""

"""Where events come from when nobody sends any: simulations, files, HTTP and public streams."""

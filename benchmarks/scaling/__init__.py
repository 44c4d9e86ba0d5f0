"""How cost grows with the number of items and with the size of the token union."""

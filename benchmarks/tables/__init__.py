"""The papers' tables, one command each: trains what a table needs, evaluates it and prints it beside the paper's."""

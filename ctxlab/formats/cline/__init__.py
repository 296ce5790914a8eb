"""Reader for task folders of Cline, Roo Code and Kilo Code."""

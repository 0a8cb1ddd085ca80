"""Pure tensor maths: warping, acceptance rules, proposals and their random numbers."""

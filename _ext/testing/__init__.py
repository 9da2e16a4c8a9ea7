"""Native code that only tests call. `setup.py build_ext --inplace` compiles it; a wheel does not contain it."""

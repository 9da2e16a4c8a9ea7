"""Native modules (Cython), compiled as ``broker._ext.*``; the ``.pxd`` files are the table of contents."""

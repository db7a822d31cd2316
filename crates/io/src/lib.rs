//! The real backend of mdspace: one io_uring per lane, files, block devices, RAM.

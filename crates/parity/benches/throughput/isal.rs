//! Intel's ISA-L, when it can be found.

use std::{
    env,
    ffi::{CString, c_int, c_void},
    fs, mem,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::row::{Blocks, MEMBERS};

/// `int xor_gen(int vects, int len, void **array)`, and `pq_gen` alike: sources first, then
/// outputs, each aligned to 32 bytes; 0 when all is well. Source: raid.h of ISA-L.
type Generate = unsafe extern "C" fn(c_int, c_int, *mut *mut c_void) -> c_int;

pub(crate) struct Isal {
    xor_gen: Generate,
    pq_gen: Generate,
}

impl Isal {
    pub(crate) fn find() -> Option<Self> {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
        let path = match env::var_os("MDSPACE_ISAL") {
            Some(path) => PathBuf::from(path),
            None => find_file(&target, "libisal.so.2")?,
        };
        let name = CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: the path is a C string; loading ISA-L runs no code but its CPU detection.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{} is no library: correct MDSPACE_ISAL", path.display());
        println!("ISA-L: {}", path.display());
        // SAFETY: the library stays loaded, and both functions have this type.
        let symbol = |name: &std::ffi::CStr| unsafe {
            let address = libc::dlsym(library, name.as_ptr());
            assert!(!address.is_null(), "ISA-L has no {name:?}");
            mem::transmute::<*mut c_void, Generate>(address)
        };
        Some(Self { xor_gen: symbol(c"xor_gen"), pq_gen: symbol(c"pq_gen") })
    }

    pub(crate) fn xor(&self, row: Blocks<'_>) {
        call(self.xor_gen, row.data, [row.p]);
    }

    pub(crate) fn pq(&self, row: Blocks<'_>) {
        call(self.pq_gen, row.data, [row.p, row.q]);
    }
}

fn call<const N: usize>(generate: Generate, data: [&[u8]; MEMBERS], outputs: [&mut [u8]; N]) {
    let len = data[0].len() as c_int;
    let data = data.map(|block| block.as_ptr().cast_mut().cast());
    let outputs = outputs.map(|block| block.as_mut_ptr().cast());
    let mut array = [data.as_slice(), outputs.as_slice()].concat();
    // SAFETY: all blocks have `len` bytes and begin at a page; only the outputs are written.
    let error = unsafe { generate(array.len() as c_int, len, array.as_mut_ptr()) };
    assert_eq!(error, 0, "ISA-L refuses its arguments");
}

fn find_file(directory: &Path, name: &str) -> Option<PathBuf> {
    fs::read_dir(directory).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        if path.is_dir() { find_file(&path, name) } else { path.ends_with(name).then_some(path) }
    })
}

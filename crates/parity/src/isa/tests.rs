use super::*;

#[test]
fn every_name_is_read_back() {
    for isa in Isa::ALL {
        assert_eq!(isa.to_string().parse(), Ok(isa));
    }
}

#[test]
fn another_name_is_refused_with_the_choice() {
    let error = "AVX2".parse::<Isa>().expect_err("names are in lower case");
    assert!(error.to_string().ends_with("use gfni, avx512, avx2, ssse3, neon, scalar"));
}

#[test]
fn every_cpu_has_scalar() {
    assert!(Isa::Scalar.is_detected());
}

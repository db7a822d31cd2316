//! XOR, P+Q and recovery for md's RAID4/5/6, one algorithm per instruction set.

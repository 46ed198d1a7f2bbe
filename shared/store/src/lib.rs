//! An ordered key-value store behind one small interface; sled is its first engine.

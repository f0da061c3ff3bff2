//! Small general helpers that know nothing of meshes

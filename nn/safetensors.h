#pragma once
/// @file
/// Tensors on disk, in the safetensors format, which Python reads too (`safetensors.numpy.load_file`).
///
/// A file is: the header's length (8 bytes, little-endian), the header (JSON: name, dtype, shape and place of each
/// tensor, and `__metadata__`), the data. Ours also carry a CRC-32 over all of the file, so damage is found at load.

#include <map>
#include <string>

#include "nn/named_tensors.h"

namespace stagecoach {

struct TensorFile {
  NamedTensors tensors;
  std::map<std::string, std::string> metadata;  ///< without the checksum, which save and load handle
};

/// Writes a file; equal contents give equal bytes. The old file stays whole until the new one is on disk.
/// Throws DataError with path and reason, and Error for names that are double or not UTF-8.
void save_tensors(const std::string& path, const TensorFile& file);

/// Reads a file of ours or another program's, into CPU memory, in the order of the data. Throws DataError with
/// path and reason when it is missing, breaks a rule of the format, holds a type that Stagecoach has not, or, in a
/// file of ours, when any bit has changed.
TensorFile load_tensors(const std::string& path);

}  // namespace stagecoach

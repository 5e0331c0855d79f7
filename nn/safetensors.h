#pragma once
/// @file
/// Tensors on disk, in the safetensors format, which Python reads too (`safetensors.numpy.load_file`).
///
/// A file is: the header's length (8 bytes, little-endian), the header (JSON: name, dtype, shape and place of each
/// tensor, and `__metadata__`), the data. Ours also carry a CRC-32 over all of the file, so damage is found at load.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/named_tensors.h"

namespace stagecoach {

/// A tensor without its elements.
struct TensorInfo {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
};

struct TensorFile {
  NamedTensors tensors;
  std::map<std::string, std::string> metadata;  ///< without the checksum, which save and load handle
  std::vector<TensorInfo> contents = {};        ///< of a file that was read: all tensors in it, kept or not
};

/// Writes a file; equal contents give equal bytes. The old file stays whole until the new one is on disk.
/// Throws DataError with path and reason, and Error for names that are double or not UTF-8.
void save_tensors(const std::string& path, const TensorFile& file);

/// The CRC-32 (zlib's) of a tensor's elements.
std::uint32_t crc32_of(const Tensor& tensor);

/// Writes a file whose tensors are never in memory all at once: first what they are, then one after the other.
class TensorFileWriter {
 public:
  struct Announced {
    TensorInfo info;
    std::uint32_t crc = 0;  ///< crc32_of: the file's checksum is in its header, before all elements
  };
  /// Throws as save_tensors does.
  TensorFileWriter(const std::string& path, const std::vector<Announced>& tensors,
                   const std::map<std::string, std::string>& metadata = {});
  ~TensorFileWriter();
  TensorFileWriter(const TensorFileWriter&) = delete;
  TensorFileWriter& operator=(const TensorFileWriter&) = delete;

  /// The next tensor. Throws Error when it is not the one that was announced.
  void add(const Tensor& tensor);
  /// The file is whole from here on. Without it nothing remains, and an older file stays.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Whether a tensor is to be read into memory, by its name.
using KeepTensor = std::function<bool(const std::string& name)>;

/// Reads a file of ours or another program's, into CPU memory, in the order of the data. Throws DataError with
/// path and reason when it is missing, breaks a rule of the format, holds a type that Stagecoach has not, or, in a
/// file of ours, when any bit has changed.
/// With `keep`, only the tensors that it accepts take memory, that of `device`, a CPU; the others are read for the
/// checksum alone.
TensorFile load_tensors(const std::string& path, const KeepTensor& keep = {}, Device device = {});

}  // namespace stagecoach

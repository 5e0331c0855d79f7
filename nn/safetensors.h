#pragma once
/// @file
/// Tensors on disk, in the safetensors format, which Python reads too (`safetensors.numpy.load_file`).
///
/// A file consists of the header's length (8 bytes, little-endian), the header (JSON: name, dtype, shape and offsets of
/// each tensor, and `__metadata__`), and the data. Files written here also carry a CRC-32 of the whole file, so that
/// loading detects damage.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/named_tensors.h"

namespace stagecoach {

/// The description of a tensor, without its elements.
struct TensorInfo {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
};

struct TensorFile {
  NamedTensors tensors;
  std::map<std::string, std::string> metadata;  ///< without the checksum, which save and load handle
  std::vector<TensorInfo> contents = {};        ///< after reading: all tensors that could be kept, kept or not
};

/// Writes a file. Equal contents give equal bytes. An old file stays intact until the new one is on disk. Throws
/// DataError with path and reason, and Error for names that are duplicate or not UTF-8.
void save_tensors(const std::string& path, const TensorFile& file);

/// Returns the CRC-32 (as in zlib) of a tensor's elements.
std::uint32_t crc32_of(const Tensor& tensor);

/// Writes a file whose tensors need not all be in memory at once: their descriptions first, then one tensor after the
/// other.
class TensorFileWriter {
 public:
  struct Announced {
    TensorInfo info;
    std::uint32_t crc = 0;  ///< from crc32_of: needed first, as the file's checksum is in its header
  };
  /// Begins the file. Throws as save_tensors does.
  TensorFileWriter(const std::string& path, const std::vector<Announced>& tensors,
                   const std::map<std::string, std::string>& metadata = {});
  ~TensorFileWriter();
  TensorFileWriter(const TensorFileWriter&) = delete;
  TensorFileWriter& operator=(const TensorFileWriter&) = delete;

  /// Writes the next tensor. Throws Error if it is not the one that was announced.
  void add(const Tensor& tensor);
  /// Completes the file. Without this call nothing is left behind, and an older file stays.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns whether the tensor of that name should be read into memory.
using KeepTensor = std::function<bool(const std::string& name)>;

/// Reads a file, written here or by another program, into CPU memory, in the order of the data. With `keep`, only the
/// tensors that it accepts are kept in memory, on `device` (a CPU); the others are read only for the checksum, and may
/// have any type. F32, F64, F16, I32 and U8 are kept as they are. BF16 becomes float32, BOOL uint8, and other integers
/// int32. Throws DataError with path and reason if the file is missing, is in another format, violates this one, has a
/// kept tensor of another type or with an integer that int32 cannot hold or, for a file written here, if any bit has
/// changed.
TensorFile load_tensors(const std::string& path, const KeepTensor& keep = {}, Device device = {});

}  // namespace stagecoach

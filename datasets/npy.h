#pragma once
/// @file
/// Arrays in NumPy's file format (.npy): a line of text that says the type and the shape, then the elements, row after
/// row. `numpy.save("train_inputs.npy", images)` writes one; `numpy.lib.format.open_memmap` one larger than the memory.
/// Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions 1.0 to 3.0.

#include <cstdint>
#include <filesystem>

#include "core/base/atomic_file.h"
#include "datasets/files.h"
#include "datasets/sample_source.h"

namespace stagecoach {

/// An array on disk, [N, …] with at least one element, of which rows are read when they are needed. It is not mapped
/// into memory, so that a file that is cut short while it is in use is an error, and not the signal SIGBUS.
class NpyFile {
 public:
  /// Reads the header. Throws DataError unless the file is a .npy of uint8, int32, float32 or float64 in C order, as
  /// long as its header says.
  explicit NpyFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  std::int64_t size() const { return size_; }     ///< N
  const SampleType& row() const { return row_; }  ///< without N
  /// Reads the rows from `first` on to `rows` [n, …] or, of one row, […], on a CPU. Throws DataError if the file has
  /// another size than when it was opened. Any thread may call it.
  void read(std::int64_t first, Tensor& rows) const;

 private:
  FileReader file_;
  std::int64_t begin_ = 0;  // of the elements, in bytes
  std::int64_t size_ = 0;
  SampleType row_;
};

/// Writes an array row by row, so that it may be larger than the memory. The file appears whole, or not at all.
class NpyWriter {
 public:
  /// Throws DataError if the file cannot be written, and Error for a type that NpyFile does not read.
  NpyWriter(const std::filesystem::path& path, std::int64_t size, const SampleType& row);
  /// Adds the next rows [n, …] or, of one row, […], from a CPU.
  void write(const Tensor& rows);
  /// Ends the file. Throws Error unless `size` rows were written.
  void commit();

 private:
  AtomicFile file_;
  SampleType row_;
  std::int64_t left_;  // elements
};

}  // namespace stagecoach

#pragma once
/// @file
/// Memory that a modelled device would not have.

namespace stagecoach {

/// As long as such an object exists, tensors that this thread makes do not count as memory of their device. This is how
/// transports move tensors while times and memory are modelled: what travels between two ranks belongs to neither, and
/// when its memory is freed depends on which of them is faster in real time.
class UncountedMemory {
 public:
  UncountedMemory();
  ~UncountedMemory();
  UncountedMemory(const UncountedMemory&) = delete;
  UncountedMemory& operator=(const UncountedMemory&) = delete;

  /// Returns whether this thread has such an object.
  static bool is_active();

 private:
  bool outer_;
};

}  // namespace stagecoach

#pragma once
/// @file
/// What a loader takes its samples from: a Dataset (images, tokens or vectors in memory), or a class of your own, for
/// data that are made, decoded or read when they are needed:
///
///     class Sums : public SampleSource {  // learn to add two numbers
///       std::int64_t size() const override { return 1000; }
///       SampleType input() const override { return {{2}, DType::float32}; }
///       SampleType target() const override { return {{1}, DType::float32}; }
///       void read(std::int64_t i, Tensor& input, Tensor& target) const override { … }
///     };
///     Loader loader(std::make_shared<Sums>(), {.batch_size = 64});

#include <cstdint>
#include <functional>
#include <memory>

#include "core/random.h"
#include "core/tensor.h"

namespace stagecoach {

struct Dataset;

/// The shape and the type of one sample's input or target. A batch has one dimension more, in front.
struct SampleType {
  Shape shape;
  DType dtype = DType::float32;
  bool operator==(const SampleType&) const = default;
};

/// Samples by their index. Immutable while a loader has it: several threads may read at the same time.
class SampleSource {
 public:
  SampleSource() = default;
  virtual ~SampleSource() = default;
  SampleSource(const SampleSource&) = delete;
  SampleSource& operator=(const SampleSource&) = delete;

  virtual std::int64_t size() const = 0;
  virtual SampleType input() const = 0;
  virtual SampleType target() const = 0;
  /// Writes sample `index`, 0 … size()-1, to CPU tensors of these shapes and types. A loader of targets alone passes an
  /// undefined `input`. The same index must always give the same bytes: a resumed run and other ranks read it again.
  virtual void read(std::int64_t index, Tensor& input, Tensor& target) const = 0;
};

/// The random numbers of one sample in one epoch: the same for any batch size, shard, rank and thread.
class SampleRandom {
 public:
  SampleRandom(const Philox& epoch, std::int64_t sample) : epoch_(epoch), sample_(static_cast<std::uint64_t>(sample)) {}
  /// Returns four random words, others for each `number`.
  Philox::Block block(std::uint64_t number = 0) const { return epoch_.block(sample_, number); }
  /// Returns number `index`, uniform on [0, 1).
  double uniform(std::uint64_t index) const { return Philox::unit(block(index / 4)[index % 4]); }

 private:
  Philox epoch_;
  std::uint64_t sample_;
};

/// Changes a sample that was read, in place, before it is in a batch: noise, crops, masks.
using Transform = std::function<void(Tensor& input, Tensor& target, const SampleRandom& random)>;

/// Returns the samples of `data`, whose tensors it shares. Throws UsageError if there are none, and Error unless inputs
/// and targets are on a CPU and as many.
std::shared_ptr<const SampleSource> samples_of(const Dataset& data);

}  // namespace stagecoach

// Checkpoints: parallel/training/checkpoints.h. An input that begins with "shard " is that of a rank, any other is the
// manifest. Both are files as with_header_length makes them.

#include <string>

#include "core/base/error.h"
#include "core/tensor.h"
#include "nn/safetensors.h"
#include "parallel/training/checkpoints.h"
#include "tests/fuzz/input_file.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

namespace {

/// A folder with one checkpoint of two ranks, in which one file at a time is another.
class DamagedCheckpoint {
 public:
  DamagedCheckpoint() : checkpoints_(folder_.path(), "the training", test_fingerprint()) {
    const Progress progress{.epoch = 1, .step = 0, .loss_sum = 0.5, .peak_bytes = {3, 4}};  // as make_seeds.cpp
    checkpoints_.begin(progress);
    for (const int rank : {0, 1}) {
      checkpoints_.write_shard(progress, rank, {{"model.w" + std::to_string(rank), Tensor::zeros({2})}});
    }
    checkpoints_.commit(progress, {0, 1});
    manifest_ = test::read_bytes(manifest_path());
    shard_ = test::read_bytes(shard_path());
  }

  void read_with(std::string_view text) const {
    const bool is_shard = text.substr(0, 6) == "shard ";
    const std::string file = fuzz::with_header_length(text.substr(is_shard ? 6 : 0));
    fuzz::write_file(manifest_path(), is_shard ? manifest_ : file);
    fuzz::write_file(shard_path(), is_shard ? file : shard_);
    fuzz::accepts<DataError>([&] { checkpoints_.newest(); });
  }

 private:
  static Fingerprint test_fingerprint() { return {{"cat", "dog"}, {{3, 4}, 5}, {{1, 2}, 6}}; }  // as make_seeds.cpp
  std::filesystem::path place() const { return folder_ / "epoch-1-step-0"; }
  std::filesystem::path manifest_path() const { return place() / "manifest.safetensors"; }
  std::filesystem::path shard_path() const { return place() / "shard_0.safetensors"; }

  test::TemporaryFolder folder_;
  Checkpoints checkpoints_;
  std::string manifest_;
  std::string shard_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const DamagedCheckpoint checkpoint;
  checkpoint.read_with(fuzz::text_of(data, size));
  return 0;
}

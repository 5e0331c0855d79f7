/// @file
/// What a training step of chapter 1 with Adam takes by a device model: the sum over its kernels, from shapes alone.
///
///     modelled_steps MODEL,BATCH,MICROBATCHES,IMAGE_SIZE DEVICE      prints the device's name, seconds and launches
///
/// An image size of 0 is the model's own. DEVICE is a name or a file, as for --device-model.

#include <fmt/core.h>

#include <array>
#include <cstdio>
#include <string>

#include "core/autograd/backward.h"
#include "core/device_model.h"
#include "core/kernel_meter.h"
#include "core/ops.h"
#include "nn/models.h"
#include "nn/optimizer.h"
#include "parallel/training/exit_code.h"

namespace stagecoach {
namespace {

constexpr Device kMeta{DeviceType::meta};

class Total final : public KernelMeter {
 public:
  explicit Total(const DeviceModel& model) : model_(model) {}
  void add(const char* /*name*/, Device /*device*/, const KernelCost& cost) override {
    picoseconds += model_.picoseconds(cost);
    launches += cost.on(model_.backend).launches;
  }
  std::int64_t picoseconds = 0;
  std::int64_t launches = 0;

 private:
  const DeviceModel& model_;
};

void print_step(const std::string& name, std::int64_t batch, std::int64_t microbatches, std::int64_t size,
                const DeviceModel& device) {
  size = size == 0 ? default_image_size(name) : size;
  const std::int64_t context = default_sizes(name).context;  // 0: the inputs are images
  const auto model = make_model(name, {.classes = context > 0 ? 256 : 10, .image_size = size});
  model->materialize(0, kMeta);
  const auto optimizer = make_optimizer(OptimizerKind::adam, model->named_parameters(), 0.001);
  const std::int64_t images = batch / microbatches;
  Total total(device);
  for (std::int64_t i = 0; i < microbatches; ++i) {
    const Tensor x = context > 0 ? Tensor::empty({images, context}, DType::int32, kMeta)
                                 : normalize(Tensor::empty({images, 3, size, size}, DType::uint8, kMeta));
    const Tensor labels = context > 0 ? x : Tensor::empty({images}, DType::int32, kMeta);
    backward(cross_entropy(model->forward(x), labels));
  }
  optimizer->step();
  optimizer->zero_grad();
  fmt::print("{} {:.9f} {}\n", device.name, 1e-12 * static_cast<double>(total.picoseconds), total.launches);
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  using namespace stagecoach;
  std::array<char, 32> model{};
  long batch = 0;
  long microbatches = 0;
  long size = 0;
  if (argc != 3 || std::sscanf(argv[1], "%31[^,],%ld,%ld,%ld", model.data(), &batch, &microbatches, &size) != 4) {
    fmt::print(stderr, "usage: modelled_steps MODEL,BATCH,MICROBATCHES,IMAGE_SIZE DEVICE\n");
    return 2;
  }
  return with_exit_code("modelled_steps", [&] {
    print_step(model.data(), batch, microbatches, size, device_model(argv[2]));
    return 0;
  });
}

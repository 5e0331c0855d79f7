#include "chapters/07_one_controller/toy.h"

#include <fmt/format.h>

#include <algorithm>

#include "chapters/07_one_controller/placed_model.h"
#include "core/autograd/backward.h"
#include "core/base/throw_if.h"
#include "core/ops.h"
#include "nn/models.h"
#include "nn/optimizer.h"
#include "parallel/pipeline/split.h"
#include "parallel/training/console.h"

namespace stagecoach {
namespace {

Tensor inputs() { return Tensor::from(std::vector<float>{1, 2, 3, 4, 4, 3, 2, 1}, {2, 4}); }
Tensor targets() { return Tensor::from(std::vector<float>{1, 0, 0, 1}, {2, 2}); }

/// Runs one step of the toy model, with fc1 and its relu on the first device and fc2 on the second.
PlacedModel step_on(const Settings& settings, Device first, Device second) {
  const auto whole = make_model("toy");
  PlacedModel model{whole, stages_of(*whole, {2, 1}), {first, second}};
  model.place(settings.training.seed);
  Sgd optimizer(whole->named_parameters(), {.learning_rate = 0.1});
  const Tensor y = model.forward(1, 0, model.forward(0, 0, inputs()));
  backward(mean_squared_error(y, targets().to(second)));
  optimizer.step();
  return model;
}

}  // namespace

void show_toy(const Settings& settings) {
  const std::vector<Device> devices = open_devices(settings.world);
  const auto asynchronous = make_asynchronous(settings, devices);
  throw_if<UsageError>(
      !settings.run.out.empty() || !settings.run.resume.empty() || settings.run.explain || devices.size() < 2,
      "--model toy runs and prints a single step on two devices; leave out --out, --resume and "
      "--explain, and use --ranks 2");
  const PlacedModel model = step_on(settings, devices[0], devices[1]);
  print_line("The toy model (4 numbers to 6 to 2) on two devices, one step");
  std::string text = fmt::format("  {:<12} {:<8} {:<8} {}\n", "parameter", "device", "gradient", "first weights after");
  bool is_same = true;
  const NamedTensors expected = step_on(settings, {}, {}).whole->named_parameters();
  const NamedTensors weights = model.whole->named_parameters();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto& [name, weight] = weights[i];
    const auto numbers = weight.to_vector<float>();
    text += fmt::format("  {:<12} {:<8} {:<8}", name, to_string(weight.device()), to_string(weight.grad().device()));
    std::for_each(numbers.begin(), numbers.begin() + 2, [&](float number) { text += fmt::format(" {:8.4f}", number); });
    text += "\n";
    is_same = is_same && numbers == expected[i].second.to_vector<float>();
  }
  print_text(text + fmt::format("  one device gets {} weights\n", is_same ? "the same" : "OTHER"));
}

}  // namespace stagecoach

#include "nn/models.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/base/throw_if.h"
#include "nn/layers.h"
#include "nn/residual_blocks.h"
#include "nn/transformer.h"

namespace stagecoach {
namespace {

using Model = std::shared_ptr<Sequential>;

void require_image_size(const std::string& name, const ModelSettings& settings, std::int64_t least) {
  throw_if<UsageError>(settings.image_size < least, "model {}: expected an image size of at least {}, got {}", name,
                       least, settings.image_size);
}

template <class Layer, class... Arguments>
void add(const Model& model, const std::string& name, Arguments&&... arguments) {
  model->add(name, std::make_shared<Layer>(std::forward<Arguments>(arguments)...));
}

Model make_toy(const ModelSettings& settings) {
  throw_if<UsageError>(
      settings.softmax_head,
      "model toy cannot have a softmax head: it predicts numbers, not classes; leave out `softmax_head`");
  auto model = std::make_shared<Sequential>();
  add<Linear>(model, "fc1", 4, 6);
  add<ReLU>(model, "relu1");
  add<Linear>(model, "fc2", 6, 2);
  return model;
}

Model make_convnet(const ModelSettings& settings) {
  throw_if<UsageError>(settings.image_size != 32,
                       "model convnet: expected an image size of 32, for which its linear layers are made, got {}",
                       settings.image_size);
  const LayerFactory& layers = *settings.layers;
  auto model = std::make_shared<Sequential>();
  add<Conv2d>(model, "conv1", 3, 6, 5);  // [N, 6, 28, 28]
  add<ReLU>(model, "relu1");
  add<MaxPool2d>(model, "pool1", 2);                           // [N, 6, 14, 14]
  model->add("conv2", layers.conv2d(6, 16, 5, Cut::outputs));  // [N, 16, 10, 10]
  add<ReLU>(model, "relu2");
  add<MaxPool2d>(model, "pool2", 2);  // [N, 16, 5, 5]
  add<Flatten>(model, "flatten");     // [N, 400]
  model->add("fc1", layers.linear(400, 120, Cut::inputs));
  add<ReLU>(model, "relu3");
  model->add("fc2", layers.linear(120, 84, layers.cuts_classes() ? Cut::none : Cut::outputs));
  add<ReLU>(model, "relu4");
  model->add("fc3", layers.classifier(84, settings.classes, Cut::inputs));
  return model;
}

/// Adds four groups of blocks, each of which, except for the first, halves the image. Returns the number of output
/// channels.
template <class Block>
std::int64_t add_groups(const Model& model, const std::array<int, 4>& blocks, std::int64_t expansion) {
  std::int64_t inputs = 64;
  for (int group = 0; group < 4; ++group) {
    const std::int64_t width = 64L << group;
    for (int block = 0; block < blocks[static_cast<std::size_t>(group)]; ++block) {
      const std::int64_t stride = group > 0 && block == 0 ? 2 : 1;
      add<Block>(model, fmt::format("layer{}.{}", group + 1, block), inputs, width, stride);
      inputs = expansion * width;
    }
  }
  return inputs;
}

/// Image sizes in the comments are for 32 x 32.
Model make_resnet18(const ModelSettings& settings) {
  require_image_size("resnet18", settings, 8);
  auto model = std::make_shared<Sequential>();
  add<Conv2d>(model, "conv1", 3, 64, 3, Conv2dSettings{.stride = 1, .padding = 1}, Bias::no);
  add<BatchNorm2d>(model, "bn1", 64);
  add<ReLU>(model, "relu1");                                                     // [N, 64, 32, 32]
  const std::int64_t channels = add_groups<BasicBlock>(model, {2, 2, 2, 2}, 1);  // [N, 512, 4, 4]
  add<GlobalAveragePool>(model, "avgpool");
  add<Linear>(model, "fc", channels, settings.classes);
  return model;
}

/// Image sizes in the comments are for 64 x 64.
Model make_resnet50(const ModelSettings& settings) {
  require_image_size("resnet50", settings, 32);
  auto model = std::make_shared<Sequential>();
  add<Conv2d>(model, "conv1", 3, 64, 7, Conv2dSettings{.stride = 2, .padding = 3}, Bias::no);
  add<BatchNorm2d>(model, "bn1", 64);
  add<ReLU>(model, "relu1");                                                                          // [N, 64, 32, 32]
  add<MaxPool2d>(model, "maxpool", Window{3, 2, 1});                                                  // [N, 64, 16, 16]
  const std::int64_t channels = add_groups<Bottleneck>(model, {3, 4, 6, 3}, Bottleneck::kExpansion);  // [N, 2048, 2, 2]
  add<GlobalAveragePool>(model, "avgpool");
  add<Linear>(model, "fc", channels, settings.classes);
  return model;
}

Model make_vit(const ModelSettings& settings) {
  constexpr std::int64_t kPatch = 4;
  throw_if<UsageError>(settings.image_size < kPatch || settings.image_size % kPatch != 0,
                       "model vit: expected an image size that is a multiple of {}, got {}", kPatch,
                       settings.image_size);
  const auto& [depth, width, heads, context] = settings.sizes;
  auto model = std::make_shared<Sequential>();
  const LayerFactory& layers = *settings.layers;
  model->add("patch_embed", layers.patch_embedding(settings.image_size, kPatch, width));  // [N, T, width]
  for (std::int64_t block = 0; block < depth; ++block) {
    add<TransformerBlock>(model, fmt::format("blocks.{}", block), width, heads, layers);
  }
  model->add("norm", layers.token_norm(width));
  model->add("pool", layers.token_mean());  // [N, width]
  model->add("head", layers.classifier(width, settings.classes, Cut::none));
  return model;
}

/// Returns the rule for first weights of GPT-2 (OpenAI's code, and nanoGPT's).
LinearInit gpt2_init(double deviation) { return {Init::normal(deviation), Init::constant(0)}; }

Model make_gpt(const ModelSettings& settings) {
  constexpr double kDeviation = 0.02;
  const auto& [depth, width, heads, context] = settings.sizes;
  const LayerFactory& layers = *settings.layers;
  const auto dropout = [&](const std::string& name) { return DropoutSettings{settings.dropout, settings.seed, name}; };
  auto model = std::make_shared<Sequential>();
  add<Embedding>(model, "transformer.wte", settings.classes, width, kDeviation);
  add<PositionEmbedding>(model, "transformer.wpe", context, width, kDeviation, dropout("transformer.wpe"));
  for (std::int64_t block = 0; block < depth; ++block) {
    const std::string name = fmt::format("transformer.h.{}", block);
    const BlockSettings block_settings{
        .mask = AttentionMask::causal,
        .names = {"ln_1", "ln_2", "c_attn", "c_proj", "c_fc", "c_proj"},
        .init = gpt2_init(kDeviation),
        .residual_init = gpt2_init(kDeviation / std::sqrt(2.0 * static_cast<double>(depth))),
        .dropout = dropout(name)};
    add<TransformerBlock>(model, name, width, heads, layers, block_settings);
  }
  model->add("transformer.ln_f", layers.token_norm(width));
  if (settings.tie_head) {
    throw_if<UsageError>(
        layers.cuts_classes(),
        "model gpt: the embedding, to which `tie_head` ties the head, is not cut by classes; leave out "
        "`tie_head`, or use `ClassParallel::no`");
    add<Linear>(model, "lm_head", width, settings.classes, gpt2_init(kDeviation), Bias::no);
  } else {
    model->add("lm_head", layers.classifier(width, settings.classes, Cut::none, gpt2_init(kDeviation)));
  }
  return model;
}

/// Adds a linear layer with relu. Its first weights keep the size of the activations (He et al., "Delving deep into
/// rectifiers", 2015): many layers with the default ones would shrink it to nothing.
void add_linear_relu(const Model& layer, const LayerFactory& layers, std::int64_t inputs, std::int64_t outputs,
                     Cut cut) {
  layer->add("fc", layers.linear(inputs, outputs, cut, 1, LinearInit::fan_in(inputs, std::sqrt(6.0))));
  add<ReLU>(layer, "relu");
}

Model make_mlp(const ModelSettings& settings) {
  constexpr std::int64_t kWindow = 4;
  require_image_size("mlp", settings, kWindow);
  const std::int64_t width = settings.sizes.width;
  const std::int64_t side = settings.image_size / kWindow;
  auto input = std::make_shared<Sequential>();
  add<MaxPool2d>(input, "pool", kWindow);  // [N, 3, side, side]
  add<Flatten>(input, "flatten");
  add_linear_relu(input, *settings.layers, 3 * side * side, width, Cut::outputs);  // [N, width]
  auto model = std::make_shared<Sequential>();
  model->add("input", input);
  // By outputs, then by inputs: two layers share a sum over the ranks. If the depth is even, the last hidden layer has
  // a partner only in a head that is not cut by classes.
  const std::int64_t depth = settings.sizes.depth;
  const Cut last = settings.layers->cuts_classes() ? Cut::none : Cut::outputs;
  const auto cut_of = [&](std::int64_t layer) {
    const Cut second = layer + 1 == depth ? last : Cut::outputs;
    return layer % 2 == 0 ? Cut::inputs : second;
  };
  for (std::int64_t i = 0; i < depth; ++i) {
    auto hidden = std::make_shared<Sequential>();
    add_linear_relu(hidden, *settings.layers, width, width, cut_of(i));
    model->add(fmt::format("hidden.{}", i), hidden);
  }
  model->add("head", settings.layers->classifier(width, settings.classes, depth % 2 == 0 ? Cut::inputs : Cut::none));
  return model;
}

struct ModelEntry {
  const char* name;
  Model (*make)(const ModelSettings&);  // with the sizes filled in
  std::int64_t image_size;
  bool can_be_cut = false;  // by tensor parallelism
  ModelSizes sizes = {};
};
// clang-format off
constexpr ModelEntry kModels[] = {
    {"toy", make_toy, 32},
    {"convnet", make_convnet, 32, true},
    {"resnet18", make_resnet18, 32},
    {"resnet50", make_resnet50, 64},
    {"vit", make_vit, 32, true, {.depth = 8, .width = 64, .heads = 4}},
    {"mlp", make_mlp, 32, true, {.depth = 8, .width = 256}},
    {"gpt", make_gpt, 0, true, {.depth = 4, .width = 64, .heads = 4, .context = 64}},
};
// clang-format on

const ModelEntry& find(const std::string& name) {
  const auto* found =
      std::find_if(std::begin(kModels), std::end(kModels), [&](const ModelEntry& entry) { return entry.name == name; });
  throw_if<UsageError>(found == std::end(kModels), "unknown model: expected one of {}, got '{}'",
                       fmt::join(model_names(), ", "), name);
  return *found;
}

std::vector<std::string> names_of_models_to_cut() {
  std::vector<std::string> names;
  for (const ModelEntry& entry : kModels) {
    if (entry.can_be_cut) {
      names.emplace_back(entry.name);
    }
  }
  return names;
}

ModelSizes with_defaults(const ModelSizes& sizes, const ModelSizes& defaults) {
  const auto chosen = [](std::int64_t size, std::int64_t fallback) { return size == 0 ? fallback : size; };
  return {chosen(sizes.depth, defaults.depth), chosen(sizes.width, defaults.width), chosen(sizes.heads, defaults.heads),
          chosen(sizes.context, defaults.context)};
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelEntry& entry : kModels) {
    names.emplace_back(entry.name);
  }
  return names;
}

Model make_model(const std::string& name, const ModelSettings& settings) {
  const ModelEntry& entry = find(name);
  throw_if<UsageError>(settings.classes < 1, "model {}: expected at least one class, got {}", name, settings.classes);
  throw_if<UsageError>(settings.dropout != 0 && name != "gpt",
                       "model {}: expected no `dropout`, which only gpt has, got {}; leave out `dropout`", name,
                       settings.dropout);
  throw_if<UsageError>(settings.tie_head && name != "gpt",
                       "model {}: only gpt has an embedding to tie its head to; leave out `tie_head`", name);
  require_sizes(name, settings.sizes);
  ModelSettings filled = settings;
  filled.sizes = with_defaults(settings.sizes, entry.sizes);
  if (filled.layers == nullptr) {
    filled.layers = std::make_shared<LayerFactory>();
  } else {
    throw_if<UsageError>(!entry.can_be_cut,
                         "model {} has no layers that tensor parallelism can cut: expected one of {}", name,
                         fmt::join(names_of_models_to_cut(), ", "));
  }
  throw_if<UsageError>(settings.softmax_head && filled.layers->cuts_classes(),
                       "model {}: a softmax needs all logits of an image, but its last layer is cut by classes; "
                       "leave out `softmax_head`, or use `ClassParallel::no`",
                       name);
  const Model model = entry.make(filled);
  if (settings.softmax_head) {
    add<Softmax>(model, "softmax");
  }
  return model;
}

ModelSizes default_sizes(const std::string& name) { return find(name).sizes; }

void require_sizes(const std::string& name, const ModelSizes& sizes) {
  const ModelSizes defaults = default_sizes(name);
  for (const auto& [what, size, known] : {std::tuple("depth", sizes.depth, defaults.depth),
                                          {"width", sizes.width, defaults.width},
                                          {"heads", sizes.heads, defaults.heads},
                                          {"context", sizes.context, defaults.context}}) {
    throw_if<UsageError>(size < 0, "model {}: expected a positive {}, got {}", name, what, size);
    throw_if<UsageError>(size != 0 && known == 0,
                         "model {0}: expected no `{1}`, got {2}; leave out `{1}`, or use another model", name, what,
                         size);
  }
  const ModelSizes chosen = with_defaults(sizes, defaults);
  throw_if<UsageError>(chosen.heads != 0 && chosen.width % chosen.heads != 0,
                       "model {}: `heads`: expected a number that divides the width {}, got {}", name, chosen.width,
                       chosen.heads);
}

std::int64_t default_image_size(const std::string& name) { return find(name).image_size; }

}  // namespace stagecoach

/// @file
/// Writes the inputs that fuzzing begins with, by the project's own writers: `make_fuzz_seeds tests/fuzz/corpus`. To be
/// run again when a format changes. Files of the corpus that it does not write were found by fuzzing.

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "chapters/common/profile_file.h"
#include "chapters/common/settings.h"
#include "core/random.h"
#include "core/tensor.h"
#include "datasets/cifar10.h"
#include "datasets/npy.h"
#include "nn/models.h"
#include "nn/safetensors.h"
#include "parallel/comm/tcp/bootstrap.h"
#include "parallel/rpc/message.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/text.h"
#include "parallel/training/checkpoints.h"
#include "parallel/training/epoch_log.h"
#include "tests/datasets/image_writer.h"
#include "tests/fuzz/all_flags.h"
#include "tests/fuzz/input_file.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

/// The inputs of one target.
class Corpus {
 public:
  explicit Corpus(const fs::path& folder) : folder_(folder) { fs::create_directories(folder); }
  fs::path path(const std::string& name) const { return folder_ / name; }
  void add(const std::string& name, const std::string& bytes) const { fuzz::write_file(path(name), bytes); }

 private:
  fs::path folder_;
};

Tensor counted(Shape shape) {
  Tensor tensor = Tensor::zeros(shape);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.mutable_data<float>()[i] = static_cast<float>(i);
  }
  return tensor;
}

/// A safetensors file as the text that with_header_length makes it of.
std::string without_header_length(const std::string& file) {
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  return file.substr(sizeof(header_bytes), header_bytes) + "\n" + file.substr(sizeof(header_bytes) + header_bytes);
}

void make_safetensors(const Corpus& corpus) {
  const TensorFile file{{{"conv.weight", counted({2, 1, 3})},
                         {"step", Tensor::zeros({}, DType::int32)},
                         {"half", Tensor::zeros({3}, DType::float16)},
                         {"empty", Tensor::zeros({0, 4})}},
                        {{"epoch", "3"}, {"words", "a \"quoted\" text"}}};
  save_tensors(corpus.path("file").string(), file);
  corpus.add("header", without_header_length(test::read_bytes(corpus.path("file"))));
  corpus.add("foreign", R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                        R"("b":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}})" +
                            std::string("\n") + std::string(19, '\1'));
}

void make_settings(const Corpus& corpus) {
  const Chapter chapter = fuzz::chapter_of_all_flags();
  Settings settings = chapter.defaults;
  settings.program = chapter.program;
  settings.training.momentum = 0.9;
  const auto add = [&](const std::string& name) {
    const std::string text = config_json(settings);
    settings_from_json(text, name, chapter);  // throws unless it is one that the reader accepts
    corpus.add(name, text);
  };
  add("defaults");
  settings.training.microbatches = 8;
  settings.pipeline.schedule = "interleaved";
  settings.pipeline.chunks = 2;
  settings.pipeline.split = "2,2,2,1,1,1,2,1";
  settings.world.clock = ClockKind::virtual_time;
  settings.world.link = "20us,12.5GB/s";
  add("pipeline");
}

void make_schedules(const Corpus& corpus) {
  corpus.add("gpipe", to_text(make_schedule("gpipe", 3, 4)));
  corpus.add("interleaved", to_text(make_schedule("interleaved", 2, 4, 2)));
  corpus.add("zb-h1", to_text(make_schedule("zb-h1", 2, 3)));
  corpus.add("dualpipev", to_text(make_schedule("dualpipev", 2, 4)));
  corpus.add("quoted", "\"0F0\",,0F1\r\n,1F0,1F1,1B0,1B1\r\n0B0,0B1\r\n");
}

void make_profile(const Corpus& corpus) {
  const auto model = make_model("toy");
  const std::vector<LayerProfile> layers(static_cast<std::size_t>(model->size()), {1e-3, 1e-3, 2e-3, 64, 32, 32, 128});
  corpus.add("profile", to_json(profile_of({.training = {.model = "toy"}}, *model, 16, layers)));
}

EpochResult epoch_called(std::int64_t epoch) {
  EpochResult result{.epoch = epoch,
                     .loss = 1.97,
                     .accuracy = 0.49,
                     .test_accuracy = 0.48,
                     .seconds = 1.83,
                     .clock = "virtual",
                     .images_per_second = 27310,
                     .idle = 0.214,
                     .peak_bytes = {4096, 2048}};
  result.prediction = {.ideal_idle = 0.2, .predicted_idle = 0.21, .predicted_seconds = 1.8, .versions = {2, 1}};
  return result;
}

void make_logs(const Corpus& metrics, const Corpus& text_log) {
  metrics.add("metrics", epoch_json(epoch_called(1)) + "\n" + epoch_json(epoch_called(2)) + "\n");
  metrics.add("unknown",
              "{\"event\": \"note\"}\n{\"event\": \"epoch\", \"epoch\": 0, \"loss\": null, \"seconds\": 2}\n");
  metrics.add("config",
              config_json({.program = "ch03_gpipe", .pipeline = {.schedule = "gpipe"}, .world = {.ranks = 3}}));
  text_log.add("ours", settings_table({.program = "ch01_single_device", .chapter = 1}) + epoch_line(epoch_called(1)) +
                           "\n" + epoch_line(epoch_called(2)) + "\n");
  text_log.add("foreign", "\033[32mstart\033[0m\n10%\r20%\rEpoch: 0, Loss: nan, acc: 0.1, time cost: 2s, lr 1e-3\n");
}

void make_flags(const Corpus& values, const Corpus& lines) {
  const std::vector<std::string> texts{"dp=2,pp=4", "5,4,3", "12", "20us,12.5GB/s", "2e-5,12.5e9", "ethernet100"};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    values.add(fmt::format("value-{}", i), texts[i]);
  }
  lines.add(
      "sharing",
      "--mode\nbuckets\n--mesh=dp=2,pp=1\n--ranks=2\n--bucket-size\n64KiB\n--first-bucket-size=1MiB\n--lr\n0.1\n");
  lines.add("pipeline",
            "--mesh\ndp=1,pp=4\n--ranks\n4\n--split\n5,4,3\n--clock=virtual\n--link\n20us,12.5GB/s\n--timeout\n30\n");
  lines.add("versions",
            "--versions\n2bw\n--replicas=2,1,1\n--microbatches\n4\n--batch-size=64\n--no-version-check\n--ledger\n");
  lines.add("training",
            "--optimizer=adam\n--weight-decay\n1e-4\n--seed\n7\n--epochs=3\n--threads=2\n--device\ncpu\n--smoke\n");
  lines.add("help", "--help\n");
}

void make_cifar10(const Corpus& corpus) {
  const Tensor image = Tensor::zeros({1, 3, 32, 32}, DType::uint8);
  write_cifar10_batch(corpus.path("batch"), image, Tensor::zeros({1}, DType::int32));
  corpus.add("names", "namesairplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n");
}

void make_npy(const Corpus& corpus) {
  NpyWriter labels(corpus.path("labels"), 2, {{}, DType::int32});
  labels.write(Tensor::full({2}, 1, DType::int32));
  labels.commit();
}

void make_images(const Corpus& corpus) {
  const Philox random(0, "image");
  for (const int channels : {1, 2, 3, 4}) {
    Pixels pixels{9, 7, channels, {}};
    for (int i = 0; i < pixels.height * pixels.width * channels; ++i) {
      pixels.bytes.push_back(static_cast<std::uint8_t>(i + static_cast<int>(random.below(i, 8))));
    }
    write_image(corpus.path(fmt::format("channels-{}.png", channels)), pixels);
    write_image(corpus.path(fmt::format("channels-{}.jpg", channels)), pixels);
  }
}

void make_bootstrap(const Corpus& corpus) {
  const auto hello = [](const char* token) {
    const TcpHello bytes(token, "run", 1, 2);
    return std::string(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  };
  corpus.add("messages", hello("token") + bootstrap_message(0, "key", "to rank 0") +
                             bootstrap_message(BootstrapHeader::kToAll, kFailureKey, "it broke"));
  corpus.add("leaves", hello("token") + bootstrap_message(BootstrapHeader::kLeaving, "", ""));
  corpus.add("stranger", hello("guess") + bootstrap_message(0, "key", "to rank 0"));
}

void make_remote_messages(const Corpus& corpus) {
  const auto text_of = [](const rpc::Packed& packed) { return std::string(packed.bytes.begin(), packed.bytes.end()); };
  const rpc::Command call{.task = rpc::Task::call,
                          .result = 300,
                          .context = 2,
                          .needs_grad = 1,
                          .name = "forward",
                          .arguments = {counted({2, 3}), std::int64_t{-1}, 0.5, true, "text", rpc::Reference{7}}};
  const rpc::Command keep{.task = rpc::Task::keep, .result = 1, .arguments = {counted({20, 20})}};
  corpus.add("commands", text_of(rpc::pack({call, {.task = rpc::Task::send, .peer = 1, .of = 300}})));
  corpus.add("follows", text_of(rpc::pack({keep, {.task = rpc::Task::shut_down}})));
  corpus.add(
      "list",
      text_of(rpc::pack(NamedTensors{{"weight", counted({2, 1})}, {"half", Tensor::zeros({}, DType::float16)}})));
  corpus.add("failure", text_of(rpc::pack(rpc::Failure{"rank 1: it has failed"})));
}

void make_checkpoints(const Corpus& corpus) {
  const test::TemporaryFolder folder;
  const Checkpoints checkpoints(folder.path(), "the training", Fingerprint{{"cat", "dog"}, {{3, 4}, 5}, {{1, 2}, 6}});
  const Progress progress{.epoch = 1, .step = 0, .loss_sum = 0.5, .peak_bytes = {3, 4}};
  checkpoints.begin(progress);
  checkpoints.write_shard(progress, 0,
                          {{"model.w0", Tensor::zeros({2})}, {"optimizer.w0.velocity", Tensor::zeros({2})}});
  checkpoints.commit(progress, {0, 1});
  const fs::path place = folder / "epoch-1-step-0";
  corpus.add("manifest", test::read_bytes(place / "manifest.safetensors"));
  corpus.add("shard", "shard " + test::read_bytes(place / "shard_0.safetensors"));
  // Without a checksum, so that its numbers are read whatever they are.
  corpus.add("foreign", R"({"__metadata__":{"correct":"0",)"
                        R"("data":"{\"classes\":[\"cat\"],\"train\":{\"counts\":[3],\"crc32\":5},)"
                        R"(\"test\":{\"counts\":[1],\"crc32\":6}}","epoch":"1","loss_sum":"0x1p-1","peak_bytes":"3,4",)"
                        R"("rank_seconds":"0x0p+0","ranks":"0,1","seconds":"0x0p+0","seen":"0","step":"0",)"
                        R"("training":"the training","waited":"0x0p+0"}})"
                        "\n");
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  using namespace stagecoach;
  if (argc != 2) {
    fmt::print(stderr, "make_fuzz_seeds: expected the folder of the corpora\n");
    return 2;
  }
  const fs::path folder(argv[1]);
  make_safetensors(Corpus(folder / "safetensors"));
  make_settings(Corpus(folder / "settings"));
  make_schedules(Corpus(folder / "schedule"));
  make_profile(Corpus(folder / "profile"));
  make_logs(Corpus(folder / "metrics"), Corpus(folder / "text_log"));
  make_flags(Corpus(folder / "flag_values"), Corpus(folder / "command_line"));
  make_cifar10(Corpus(folder / "cifar10"));
  make_npy(Corpus(folder / "npy"));
  make_images(Corpus(folder / "image"));
  make_bootstrap(Corpus(folder / "bootstrap"));
  make_remote_messages(Corpus(folder / "remote_message"));
  make_checkpoints(Corpus(folder / "checkpoints"));
  return 0;
}

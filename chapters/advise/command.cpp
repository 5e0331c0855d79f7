#include "chapters/advise/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "chapters/common/open.h"
#include "parallel/advise/late.h"

namespace stagecoach {
namespace {

std::string pipeline_flags(const Evaluated& plan) {
  const Candidate& candidate = plan.candidate;
  if (candidate.mesh.pipeline == 1) {
    return "";
  }
  if (versions_of(candidate.schedule)) {
    return fmt::format(" --split {}", fmt::join(plan.split, ","));
  }
  return fmt::format(" --schedule {} --chunks {} --split {}", candidate.schedule, candidate.chunks,
                     fmt::join(plan.split, ","));
}

/// Returns the program, with the flags that say which ranks do what.
std::string ranks_of(const Candidate& candidate) {
  const auto& [data, pipeline, tensor, shards] = candidate.mesh;
  if (candidate.is_data_parallel()) {
    return data == 1 ? "ch01_single_device" : fmt::format("ch06_ddp --ranks {}", data);
  }
  if (const auto versions = versions_of(candidate.schedule)) {
    return fmt::format("ch04_pipedream --ranks {} --versions {}", pipeline, to_string(*versions));
  }
  if (data == 1 && tensor == 1) {
    return fmt::format("ch05_interleaved --ranks {}", pipeline);
  }
  return fmt::format("ch08_tensor_parallel --mesh dp={},pp={},tp={}", data, pipeline, tensor);
}

}  // namespace

std::string command_of(const AdviseOptions& options, const Evaluated& plan, const std::string& data) {
  const Candidate& candidate = plan.candidate;
  const Settings& settings = options.settings;
  const std::string model =
      options.given.find(" --model ") == std::string::npos ? fmt::format(" --model {}", settings.training.model) : "";
  const std::string where = data.empty() && reads_text(settings.training) ? "text:book" : data;
  const std::string batch = options.given.find(" --batch-size ") == std::string::npos
                                ? fmt::format(" --batch-size {}", settings.training.batch_size)
                                : "";
  const std::string buckets = candidate.mesh.data > 1 && candidate.bucket_size != BucketCaps{}.rest
                                  ? " --bucket-size " + bucket_text(candidate.bucket_size)
                                  : "";
  return fmt::format("{}{}{}{}{} --microbatches {}{}{}{} --clock modelled --device-model {}{}", ranks_of(candidate),
                     where.empty() ? "" : " --data " + where, model, options.given, batch, candidate.microbatches,
                     pipeline_flags(plan), buckets, candidate.recompute ? " --recompute" : "",
                     settings.world.modelled_device.text(),
                     candidate.mesh.ranks() == 1 ? "" : " --link " + settings.world.link.text());
}

}  // namespace stagecoach

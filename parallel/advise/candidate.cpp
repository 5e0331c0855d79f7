#include "parallel/advise/candidate.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/phrases.h"
#include "core/base/throw_if.h"
#include "parallel/advise/late.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {
namespace {

constexpr int kMostMicrobatchesPerRank = 16;  // then the bubble is below 6%
constexpr int kChunks[] = {2, 3, 4};

std::vector<std::int64_t> divisors_of(std::int64_t number, std::int64_t most) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t i = 1; i <= std::min(number, most); ++i) {
    if (number % i == 0) {
      divisors.push_back(i);
    }
  }
  return divisors;
}

/// Returns the meshes of `ranks` ranks with the sizes that the request fixes.
std::vector<MeshSizes> meshes_of(const AdviceRequest& request, int ranks) {
  const auto fits = [](const std::optional<int>& fixed, int size) { return !fixed || *fixed == size; };
  std::vector<MeshSizes> meshes;
  for (const std::int64_t tensor : divisors_of(ranks, ranks)) {
    for (const std::int64_t pipeline : divisors_of(ranks / tensor, ranks)) {
      const MeshSizes mesh{.data = static_cast<int>(ranks / tensor / pipeline),
                           .pipeline = static_cast<int>(pipeline),
                           .tensor = static_cast<int>(tensor)};
      if (fits(request.data, mesh.data) && fits(request.pipeline, mesh.pipeline) && fits(request.tensor, mesh.tensor) &&
          request.batch_size % mesh.data == 0) {
        meshes.push_back(mesh);
      }
    }
  }
  return meshes;
}

/// A schedule with its chunks.
struct Order {
  std::string schedule;
  int chunks;
};

std::vector<Order> orders_of(const AdviceRequest& request, const MeshSizes& mesh) {
  if (mesh.pipeline == 1) {
    return {{"1f1b", 1}};
  }
  std::vector<Order> orders;
  for (const ScheduleKind& kind : schedule_kinds()) {
    const auto& wanted = request.schedules;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), kind.name) == wanted.end()) {
      continue;
    }
    if (!kind.takes_chunks()) {
      orders.push_back({kind.name, kind.min_chunks});
      continue;
    }
    for (const int chunks : kChunks) {
      orders.push_back({kind.name, chunks});
    }
  }
  if (request.late && mesh.ranks() == mesh.pipeline) {
    for (const std::string& schedule : late_schedules()) {
      orders.push_back({schedule, 1});
    }
  }
  return orders;
}

void add_candidates(const AdviceRequest& request, const MeshSizes& mesh, std::vector<Candidate>& all) {
  const std::int64_t samples = request.batch_size / mesh.data;
  for (const std::int64_t microbatches : divisors_of(samples, std::int64_t{kMostMicrobatchesPerRank} * mesh.pipeline)) {
    if (request.microbatches && *request.microbatches != microbatches) {
      continue;
    }
    for (const auto& [schedule, chunks] : orders_of(request, mesh)) {
      for (const bool recompute : {false, true}) {
        for (const Balanced balanced : {Balanced::time, Balanced::layers}) {
          if (request.recompute.value_or(recompute) == recompute &&
              (mesh.pipeline > 1 || balanced == Balanced::time)) {  // one stage is all layers
            all.push_back({.schedule = schedule,
                           .mesh = mesh,
                           .microbatches = static_cast<int>(microbatches),
                           .chunks = chunks,
                           .recompute = recompute,
                           .balanced = balanced,
                           .bucket_size = request.bucket_size.value_or(BucketCaps{}.rest)});
          }
        }
      }
    }
  }
}

}  // namespace

std::string bucket_text(std::size_t bytes) {
  constexpr std::size_t kMebi = std::size_t{1} << 20;
  return bytes % kMebi == 0 ? fmt::format("{}MiB", bytes / kMebi) : std::to_string(bytes);
}

std::string to_string(const Candidate& candidate) {
  const auto& [data, pipeline, tensor, shards] = candidate.mesh;
  std::string text = pipeline > 1 ? candidate.schedule : data * tensor == 1 ? "one device" : "";
  for (const auto& [name, size] : {std::pair("dp", data), {"pp", pipeline}, {"tp", tensor}}) {
    text += size > 1 ? fmt::format("{}{}={}", text.empty() ? "" : " ", name, size) : "";
  }
  text += fmt::format(", {}", counted(candidate.microbatches, "micro-batch"));
  text += candidate.chunks > 2 ? fmt::format(", {} chunks", candidate.chunks) : "";
  text += data > 1 && candidate.bucket_size != BucketCaps{}.rest
              ? fmt::format(", {} buckets", bucket_text(candidate.bucket_size))
              : "";
  return text + (candidate.recompute ? ", recompute" : "");
}

std::vector<Candidate> candidates_of(const AdviceRequest& request) {
  std::vector<Candidate> all;
  const std::vector<MeshSizes> meshes = meshes_of(request, request.ranks);
  throw_if<UsageError>(meshes.empty(),
                       "no mesh of {} has the fixed sizes: expected dp x pp x tp = {}, with a dp that divides the {} "
                       "of a batch; change dp, pp, tp, `ranks` or the batch size",
                       counted(request.ranks, "rank"), request.ranks, counted(request.batch_size, "sample"));
  for (const MeshSizes& mesh : meshes) {
    add_candidates(request, mesh, all);
  }
  if (request.ranks > 1) {
    for (const MeshSizes& mesh : meshes_of(request, 1)) {
      add_candidates(request, mesh, all);
    }
  }
  throw_if<UsageError>(all.empty(),
                       "no candidate has {} micro-batches of equal size: expected a divisor of the {} of a pipeline, "
                       "at most {} per pipeline rank",
                       request.microbatches.value_or(0), counted(request.batch_size / meshes.front().data, "sample"),
                       kMostMicrobatchesPerRank);
  return all;
}

}  // namespace stagecoach

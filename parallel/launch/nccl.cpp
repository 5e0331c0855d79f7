#include "parallel/launch/nccl.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <utility>
#include <vector>

#include "core/cuda_backend.h"
#include "core/error.h"
#include "parallel/comm/nccl/nccl_communicator.h"
#include "parallel/comm/nccl/nccl_wire.h"
#include "parallel/comm/tcp/mail.h"
#include "parallel/launch/nccl_rules.h"
#include "parallel/launch/rank_failure.h"
#include "parallel/launch/rank_threads.h"
#include "parallel/launch/rendezvous.h"
#include "parallel/launch/tcp_store_token.h"

namespace stagecoach::nccl {
namespace {

using Seconds = std::chrono::duration<double>;
using Recorder = std::shared_ptr<FlightRecorder>;

std::string wait_for(Mail& mail, const std::string& key, MailWait& patience) {
  auto text = mail.take(key);
  while (!text) {
    patience.look();
    text = mail.take(key);
  }
  return *text;
}

/// Rank 0 hears which GPU each rank has; when all are different it tells the id by which NCCL knows them as one world.
std::string agree_on_id(Mail& mail, int rank, int size, const std::string& gpu) {
  MailWait patience(mail, {}, [=] { return fmt::format("rank {}: the start of all ranks", rank); });
  if (rank > 0) {
    mail.post(0, fmt::format("gpu/{}", rank), gpu);
    return wait_for(mail, "id", patience);
  }
  std::vector<std::string> gpus{gpu};
  for (int r = 1; r < size; ++r) {
    gpus.push_back(wait_for(mail, fmt::format("gpu/{}", r), patience));
  }
  require_gpu_each(gpus);
  const std::string id = new_nccl_id();
  for (int r = 1; r < size; ++r) {
    mail.post(r, "id", id);
  }
  return id;
}

std::unique_ptr<Wire> connect(Mail& mail, Device device, int rank, int size) {
  const std::string id = agree_on_id(mail, rank, size, gpu_name(device));
  const auto words = [=] { return fmt::format("rank {}: the start of NCCL on all ranks", rank); };
  MailWait patience(mail, {}, words);
  try {
    return make_nccl_wire(device, id, rank, size, [&] { patience.look(); });
  } catch (const WireError& error) {
    throw CommError(fmt::format("{}: {}", words(), error.what()));
  }
}

void run_rank(const World& world, int rank, Device device, Mail& mail, const Recorder& recorder,
              const std::function<void(Rank&)>& body) {
  require_device(device);
  auto wire = connect(mail, device, rank, world.ranks);
  std::vector<int> members(static_cast<std::size_t>(world.ranks));
  std::iota(members.begin(), members.end(), 0);
  // All ranks come from there at about the same time, and begin to count it.
  auto clock = make_clock(world.clock, device, world.link, start_wall_time());
  NcclCommunicator comm(mail, std::move(wire),
                        {"world", rank, members, device, std::move(clock), recorder, world.reduce});
  Rank mine{rank, world.ranks, device, comm};
  body(mine);
}

void run_threads(const World& world, int gpus, const std::function<void(Rank&)>& body) {
  const TcpStoreServer server({{"127.0.0.1", 0}, random_token()}, {.clients = 2 * world.ranks});
  std::vector<std::unique_ptr<Mail>> mails(static_cast<std::size_t>(world.ranks));
  const auto run = [&](int r, const Recorder& recorder) {
    auto& mail = mails[static_cast<std::size_t>(r)];
    mail = std::make_unique<Mail>(server.address(), "run", r, world.ranks, Seconds(world.timeout));
    run_rank(world, r, nccl_device(std::nullopt, r, gpus), *mail, recorder, body);
  };
  run_on_threads(world, run, [&](int r, const std::string& why) {
    if (const auto& mail = mails[static_cast<std::size_t>(r)]; mail != nullptr) {
      mail->fail(why);
    }
  });
}

void run_process(const World& world, const Launched& process, int gpus, const std::function<void(Rank&)>& body) {
  static std::atomic<int> runs = 0;
  const Rendezvous& place = Rendezvous::instance(world);
  Mail mail(place.address(), fmt::format("run {}", runs++), process.rank, process.size, Seconds(world.timeout));
  run_as_process(
      process.rank,
      [&](const Recorder& recorder) {
        run_rank(world, process.rank, nccl_device(process, process.rank, gpus), mail, recorder, body);
      },
      [&](const std::string& why) { mail.fail(why); });
}

}  // namespace

bool is_built_in() { return true; }

void run_ranks(const World& world, const std::function<void(Rank&)>& body) {
  const int gpus = world.device == DeviceType::cuda ? cuda::gpu_count() : 0;
  require_nccl(world, launched(), gpus);
  if (launched()) {
    run_process(world, *launched(), gpus, body);
  } else {
    run_threads(world, gpus, body);
  }
}

void agree_on(const World& world, Tensor& values) {
  if (launched()) {
    Rendezvous::instance(world).agree_on(values);
  }
}

}  // namespace stagecoach::nccl

#include "parallel/comm/mpi/mpi_communicator.h"

#include <limits>
#include <utility>

#include "core/base/error.h"
#include "core/base/recycled.h"
#include "core/stream.h"
#include "core/trace.h"

namespace stagecoach {
namespace {

enum Kind { kMessage, kCompleted, kExchange, kKinds };  // messages of different kinds are kept apart

int mpi_tag(int tag, Kind kind) { return tag * kKinds + kind; }

/// Returns MPI_DATATYPE_NULL for a type that MPI cannot sum.
MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return MPI_FLOAT;
    case DType::float64:
      return MPI_DOUBLE;
    case DType::int32:
      return MPI_INT32_T;
    case DType::uint8:
      return MPI_UINT8_T;
    case DType::float16:
      return MPI_DATATYPE_NULL;
  }
  fail("mpi: unknown dtype");
}

}  // namespace

/// A message under way.
class MpiCommunicator::Send final : public Outgoing {
 public:
  Send(MpiCommunicator& comm, const Tensor& tensor, int to, int tag, const ErrorContext& context);
  double wait(const ErrorContext& context) override {
    comm_.wait(requests_, context);
    end();
    return completed_at_;
  }
  std::optional<double> completed_at() override {
    comm_.receives_->advance();
    return has_ended() ? std::optional(completed_at_) : std::nullopt;
  }
  /// Releases the memory of a completed send. Returns whether it has completed.
  bool has_ended() {
    const bool done = comm_.world_.are_done(requests_);
    if (done) {
      end();
    }
    return done;
  }

 private:
  void end() {
    message_.end();
    moving_ = nullptr;
  }

  MpiCommunicator& comm_;
  MpiOutgoing message_;
  MpiRequests requests_;
  double completed_at_ = 0;  // if times are computed: sent by the receiver
  std::shared_ptr<void> moving_;
};

MpiCommunicator::Send::Send(MpiCommunicator& comm, const Tensor& tensor, int to, int tag, const ErrorContext& context)
    : comm_(comm) {
  const LinkDirection::Send when = comm.time_of_send(bytes_of(tensor), to);
  // MPI_Issend, as a schedule whose sends wait for the receiver must do so also where MPI has buffers to spare.
  message_.start({comm.comm_, to, mpi_tag(tag, kMessage)}, {"send", tensor, when}, tensor,
                 bytes_of(tensor) > kEagerBytes ? MPI_Issend : MPI_Isend, requests_, context);
  moving_ = comm.keep_moving(tensor);
  if (comm.computes_times()) {  // the receiver answers with the time of receipt
    MpiWorld::check(MPI_Irecv(&completed_at_, 1, MPI_DOUBLE, to, mpi_tag(tag, kCompleted), comm.comm_,
                              &requests_.emplace_back(MPI_REQUEST_NULL)),
                    context);
  }
}

class MpiCommunicator::Receive final : public Incoming {
 public:
  Receive(MpiCommunicator& comm, std::shared_ptr<MpiReceives::Posted> posted)
      : comm_(comm), receives_(comm.receives_), posted_(std::move(posted)) {}
  ~Receive() override { receives_->cancel(posted_); }

  double wait(const ErrorContext& context) override {
    comm_.wait(std::span(posted_->requests).first(1), context);
    if (const MessageHeader got = posted_->message.header(); !got.is_of_same_type(posted_->like)) {
      throw unexpected(context(), posted_->like.type(), got.type());
    }
    comm_.wait(posted_->requests, context);
    receives_->advance();
    posted_->taken = true;
    posted_->moving = nullptr;
    return comm_.computes_times() ? posted_->arrival() : comm_.clock().now();
  }
  Tensor take(const ErrorContext& /*context*/) override { return posted_->message.end(); }

 private:
  MpiCommunicator& comm_;
  std::shared_ptr<MpiReceives> receives_;
  std::shared_ptr<MpiReceives::Posted> posted_;
};

MpiCommunicator::MpiCommunicator(MpiWorld& world, MPI_Comm comm, Group group, std::shared_ptr<MpiReceives> receives,
                                 WaitMode mode, bool may_spin)
    : ExchangeCommunicator(std::move(group), mode, may_spin),
      world_(world),
      comm_(comm),
      receives_(std::move(receives)),
      exchange_(std::make_shared<Exchange>()) {
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  exchange_->out.resize(static_cast<std::size_t>(size()));
  exchange_->in.resize(static_cast<std::size_t>(size()));
}

MpiCommunicator::~MpiCommunicator() {
  for (const auto& sent : sent_) {
    if (world_.failed() || !sent->has_ended()) {
      world_.leak_until_exit(sent);
    }
  }
  if (world_.failed()) {
    world_.leak_until_exit(exchange_);
  } else {
    MPI_Comm_free(&comm_);
  }
}

void MpiCommunicator::exchange(const char* operation, const Tensor& like, ExchangeBuffers& buffers) {
  synchronize({device(), Stream::kCompute});  // MPI reads what the device has made
  const auto context = [&] { return error_context(operation); };
  MpiRequests& requests = exchange_->requests;
  requests.clear();
  std::vector<std::pair<int, std::size_t>> headers;  // of each sender: its rank and the index of its first request
  // Starts with the next rank, so that not all ranks send to the same rank at once.
  for (int i = 1; i < size(); ++i) {
    const int r = (rank() + i) % size();
    const MpiAddress address{comm_, r, mpi_tag(0, kExchange)};
    const auto peer = static_cast<std::size_t>(r);
    if (buffers[peer].in.defined()) {
      headers.emplace_back(r, requests.size());
      exchange_->in[peer].start(address, buffers[peer].in, requests, context);
    }
    if (buffers[peer].out.defined()) {
      exchange_->out[peer].start(address, header_of(operation, like, buffers[peer].out), buffers[peer].out, MPI_Isend,
                                 requests, context);
    }
  }
  try {
    for (const auto& [from, request] : headers) {  // first: what follows a wrong header does not fit
      wait(std::span(requests).subspan(request, 1), context);
      const auto peer = static_cast<std::size_t>(from);
      require_same(operation, like, buffers[peer].in, exchange_->in[peer].header(), from);
    }
    wait(requests, context);
  } catch (...) {
    world_.leak_until_exit(exchange_);  // MPI may still write there
    throw;
  }
  for (const auto& [from, request] : headers) {
    static_cast<void>(exchange_->in[static_cast<std::size_t>(from)].end());
  }
  for (MpiOutgoing& out : exchange_->out) {
    out.end();
  }
}

bool MpiCommunicator::sum_natively(Tensor& tensor) {
  const MPI_Datatype type = mpi_type(tensor.dtype());
  if (type == MPI_DATATYPE_NULL || tensor.numel() > std::numeric_limits<int>::max()) {
    return false;
  }
  synchronize({device(), Stream::kCompute});  // MPI reads what the device has made
  const auto context = [&] { return error_context("all_reduce"); };
  const auto sum = std::make_shared<Tensor>(tensor);
  MPI_Request request = MPI_REQUEST_NULL;
  // Non-blocking MPI_Iallreduce, so that the wait has a deadline.
  MpiWorld::check(MPI_Iallreduce(MPI_IN_PLACE, tensor.raw_mutable_data(), static_cast<int>(tensor.numel()), type,
                                 MPI_SUM, comm_, &request),
                  context);
  try {
    wait({&request, 1}, context);
  } catch (...) {
    world_.leak_until_exit(sum);  // MPI may still write there
    throw;
  }
  return true;
}

void MpiCommunicator::wait(std::span<MPI_Request> requests, const ErrorContext& context) {
  if (computes_times()) {
    world_.wait(requests, wait_policy(), context, [this] { receives_->advance(); });
  } else {
    world_.wait(requests, wait_policy(), context);
  }
}

std::shared_ptr<void> MpiCommunicator::keep_moving(const Tensor& tensor) {
  return computes_times() || bytes_of(tensor) <= kEagerBytes ? nullptr : world_.keep_moving();
}

std::shared_ptr<GroupCommunicator::Outgoing> MpiCommunicator::start_send(const Tensor& tensor, int to, int tag,
                                                                         const ErrorContext& context) {
  while (!sent_.empty() && sent_.front()->has_ended()) {
    sent_.pop_front();
  }
  synchronize({tensor.device(), Stream::kCompute});  // MPI reads what the device has made
  sent_.push_back(std::allocate_shared<Send>(Recycled<Send>(), *this, tensor, to, tag, context));
  return sent_.back();
}

std::shared_ptr<GroupCommunicator::Incoming> MpiCommunicator::post_receive(const Shape& shape, DType dtype,
                                                                           Device device, int from, int tag,
                                                                           const ErrorContext& context) {
  synchronize({device, Stream::kCompute});  // MPI writes to memory that the device may still be using
  const Tensor tensor = Tensor::empty(shape, dtype, device);
  const auto posted = receives_->post({comm_, from, mpi_tag(tag, kMessage)}, tensor, context);
  posted->moving = keep_moving(tensor);
  posted->sender = {comm_, from, mpi_tag(tag, kCompleted)};
  if (computes_times()) {
    receives_->expect(*posted, direction_from(from), clock().now());
  }
  return std::make_shared<Receive>(*this, posted);
}

std::optional<double> MpiCommunicator::poll_number(int from, int tag, const ErrorContext& context) {
  int has_arrived = 0;
  MpiWorld::check(MPI_Iprobe(from, mpi_tag(tag, kMessage), comm_, &has_arrived, MPI_STATUS_IGNORE), context);
  return has_arrived != 0 ? std::optional(receive_number(from, tag)) : std::nullopt;
}

std::unique_ptr<Communicator> MpiCommunicator::make_part(Group part) {
  MPI_Comm comm = MPI_COMM_NULL;
  // MPI requires colours >= 0, so the first member's world rank is the colour. All ranks are in the call by now.
  world_.guard("MPI_Comm_split", [&] { MPI_Comm_split(comm_, part.members[0], part.rank, &comm); });
  return std::make_unique<MpiCommunicator>(world_, comm, std::move(part), receives_, wait_policy().mode,
                                           wait_policy().may_spin);
}

std::unique_ptr<Communicator> MpiCommunicator::make_duplicate(Group copy) {
  MPI_Comm comm = MPI_COMM_NULL;
  world_.guard("MPI_Comm_dup", [&] { MPI_Comm_dup(comm_, &comm); });
  constexpr bool kMaySpin = false;
  return std::make_unique<MpiCommunicator>(world_, comm, std::move(copy), std::make_shared<MpiReceives>(world_),
                                           wait_policy().mode, kMaySpin);
}

}  // namespace stagecoach

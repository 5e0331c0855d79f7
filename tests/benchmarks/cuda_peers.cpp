#include "tests/benchmarks/cuda_peers.h"

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define STAGECOACH_HAS_CUDNN_HEADER 1
#else
#define STAGECOACH_HAS_CUDNN_HEADER 0
#endif

#include <array>
#include <initializer_list>
#include <memory>

#include "core/base/error.h"
#include "tests/benchmarks/cuda_timing.h"

namespace stagecoach {
namespace {

void check(cudaError_t status, const char* what) {
  STAGECOACH_CHECK(status == cudaSuccess, "{}: {}", what, cudaGetErrorString(status));
}

/// The first of `names` that the loader finds, kept until the program ends. Null without one, or if it cannot be used.
template <class Peer>
std::unique_ptr<Peer> open_peer(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
      try {
        return std::make_unique<Peer>(library);
      } catch (const Error& error) {
        fmt::print(stderr, "{} is there but cannot be used: {}\n", name, error.what());
      }
    }
  }
  return nullptr;
}

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  STAGECOACH_CHECK(function != nullptr, "the library has no {}", name);
}

/// The stream on which the libraries run. It lives as long as the program.
cudaStream_t peer_stream() {
  static const cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreate");
    return made;
  }();
  return stream;
}

/// A recording, freed with the last handle on it.
Work record(const Work& work) {
  check(cudaStreamBeginCapture(peer_stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(peer_stream(), &graph);  // or the stream would stay in its capture
    throw;
  }
  check(cudaStreamEndCapture(peer_stream(), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  const std::shared_ptr<CUgraphExec_st> owner(executable, [](cudaGraphExec_t old) { cudaGraphExecDestroy(old); });
  return [owner] { check(cudaGraphLaunch(owner.get(), peer_stream()), "cudaGraphLaunch"); };
}

double peer_seconds(const Work& body) {
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // what filled the operands ran on another stream
  return median_seconds({record, [](const Work& work) { return seconds_on(peer_stream(), work); }}, body);
}

/// Scratch memory, kept until the program ends.
template <std::size_t kBytes>
void* scratch() {
  static void* const memory = [] {
    void* made = nullptr;
    check(cudaMalloc(&made, kBytes), "cudaMalloc");
    return made;
  }();
  return memory;
}

// The pointers that the libraries take; tensors of a GPU point to its memory.
const float* in(const Tensor& tensor) { return static_cast<const float*>(tensor.raw_data()); }
float* out(Tensor tensor) { return static_cast<float*>(tensor.raw_mutable_data()); }

/// The functions of cuBLAS that are used, and a handle. From version 12 on they have not changed.
struct Cublas {
  static constexpr std::size_t kScratch = std::size_t{32} << 20;

  decltype(cublasCreate_v2)* create = nullptr;
  decltype(cublasSetStream_v2)* set_stream = nullptr;
  decltype(cublasSetWorkspace_v2)* set_workspace = nullptr;
  decltype(cublasGetProperty)* get_property = nullptr;
  decltype(cublasSetMathMode)* set_math = nullptr;
  decltype(cublasSgemm_v2)* sgemm = nullptr;
  cublasHandle_t handle = nullptr;

  explicit Cublas(void* library) {
    find(library, "cublasCreate_v2", create);
    find(library, "cublasSetStream_v2", set_stream);
    find(library, "cublasSetWorkspace_v2", set_workspace);
    find(library, "cublasGetProperty", get_property);
    find(library, "cublasSetMathMode", set_math);
    find(library, "cublasSgemm_v2", sgemm);
    require(create(&handle), "cublasCreate");
    require(set_stream(handle, peer_stream()), "cublasSetStream");
    require(set_workspace(handle, scratch<kScratch>(), kScratch), "cublasSetWorkspace");
  }

  static void require(cublasStatus_t status, const char* what) {
    STAGECOACH_CHECK(status == CUBLAS_STATUS_SUCCESS, "{}: status {}", what, static_cast<int>(status));
  }
};

const Cublas* cublas() {
  static const auto found = open_peer<Cublas>({"libcublas.so.13", "libcublas.so.12"});
  return found.get();
}

std::string cublas_description() {
  if (cublas() == nullptr) {
    return "no cuBLAS 12 or 13";
  }
  int major = 0;
  int minor = 0;
  int patch = 0;
  cublas()->get_property(MAJOR_VERSION, &major);
  cublas()->get_property(MINOR_VERSION, &minor);
  cublas()->get_property(PATCH_LEVEL, &patch);
  return fmt::format("cuBLAS {}.{}.{}", major, minor, patch);
}

}  // namespace

// cuBLAS counts in columns: our [N, I] is its I x N.
std::optional<double> cublas_linear_seconds(Pass pass, Precision precision, const Tensor& x, const Tensor& weight,
                                            const Tensor& y) {
  const Cublas* blas = cublas();
  if (blas == nullptr) {
    return std::nullopt;
  }
  const auto samples = static_cast<int>(x.size(0));
  const auto inputs = static_cast<int>(weight.size(1));
  const auto outputs = static_cast<int>(weight.size(0));
  const float one = 1;
  const float zero = 0;
  Cublas::require(
      blas->set_math(blas->handle, precision == Precision::tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH),
      "cublasSetMathMode");
  const auto product = [&](cublasOperation_t op_a, cublasOperation_t op_b, int rows, int columns, int depth,
                           const Tensor& a, int lda, const Tensor& b, int ldb, const Tensor& c) {
    Cublas::require(
        blas->sgemm(blas->handle, op_a, op_b, rows, columns, depth, &one, in(a), lda, in(b), ldb, &zero, out(c), rows),
        "cublasSgemm");
  };
  return peer_seconds([&] {
    switch (pass) {
      case Pass::forward:
        return product(CUBLAS_OP_T, CUBLAS_OP_N, outputs, samples, inputs, weight, inputs, x, inputs, y);
      case Pass::grad_input:
        return product(CUBLAS_OP_N, CUBLAS_OP_N, inputs, samples, outputs, weight, inputs, y, outputs, x);
      case Pass::grad_weight:
        return product(CUBLAS_OP_N, CUBLAS_OP_T, inputs, outputs, samples, x, inputs, y, outputs, weight);
    }
  });
}

#if STAGECOACH_HAS_CUDNN_HEADER
namespace {

constexpr std::size_t kConvScratch = std::size_t{1} << 30;

/// The functions of cuDNN 9 that are used, and a handle.
struct Cudnn {
  decltype(cudnnCreate)* create = nullptr;
  decltype(cudnnSetStream)* set_stream = nullptr;
  decltype(cudnnGetVersion)* version = nullptr;
  decltype(cudnnCreateTensorDescriptor)* create_tensor = nullptr;
  decltype(cudnnSetTensor4dDescriptor)* set_tensor = nullptr;
  decltype(cudnnCreateFilterDescriptor)* create_filter = nullptr;
  decltype(cudnnSetFilter4dDescriptor)* set_filter = nullptr;
  decltype(cudnnCreateConvolutionDescriptor)* create_convolution = nullptr;
  decltype(cudnnSetConvolution2dDescriptor)* set_convolution = nullptr;
  decltype(cudnnSetConvolutionMathType)* set_math = nullptr;
  decltype(cudnnFindConvolutionForwardAlgorithmEx)* find_forward = nullptr;
  decltype(cudnnFindConvolutionBackwardDataAlgorithmEx)* find_grad_input = nullptr;
  decltype(cudnnFindConvolutionBackwardFilterAlgorithmEx)* find_grad_weight = nullptr;
  decltype(cudnnConvolutionForward)* forward = nullptr;
  decltype(cudnnConvolutionBackwardData)* grad_input = nullptr;
  decltype(cudnnConvolutionBackwardFilter)* grad_weight = nullptr;
  cudnnHandle_t handle = nullptr;

  explicit Cudnn(void* library) {
    find(library, "cudnnCreate", create);
    find(library, "cudnnSetStream", set_stream);
    find(library, "cudnnGetVersion", version);
    find(library, "cudnnCreateTensorDescriptor", create_tensor);
    find(library, "cudnnSetTensor4dDescriptor", set_tensor);
    find(library, "cudnnCreateFilterDescriptor", create_filter);
    find(library, "cudnnSetFilter4dDescriptor", set_filter);
    find(library, "cudnnCreateConvolutionDescriptor", create_convolution);
    find(library, "cudnnSetConvolution2dDescriptor", set_convolution);
    find(library, "cudnnSetConvolutionMathType", set_math);
    find(library, "cudnnFindConvolutionForwardAlgorithmEx", find_forward);
    find(library, "cudnnFindConvolutionBackwardDataAlgorithmEx", find_grad_input);
    find(library, "cudnnFindConvolutionBackwardFilterAlgorithmEx", find_grad_weight);
    find(library, "cudnnConvolutionForward", forward);
    find(library, "cudnnConvolutionBackwardData", grad_input);
    find(library, "cudnnConvolutionBackwardFilter", grad_weight);
    require(create(&handle), "cudnnCreate");
    require(set_stream(handle, peer_stream()), "cudnnSetStream");
  }

  static void require(cudnnStatus_t status, const char* what) {
    STAGECOACH_CHECK(status == CUDNN_STATUS_SUCCESS, "{}: status {}", what, static_cast<int>(status));
  }
};

const Cudnn* cudnn() {
  static const auto found = open_peer<Cudnn>({"libcudnn.so.9"});
  return found.get();
}

std::string cudnn_description() {
  if (cudnn() == nullptr) {
    return "no cuDNN 9";
  }
  const auto version = cudnn()->version();  // 91300 for 9.13.0
  return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

/// One convolution. Its few descriptors are not freed: cuDNN's are small, and the program ends soon.
class CudnnConvolution {
 public:
  CudnnConvolution(const Cudnn& dnn, Precision precision, const Window& window, const Tensor& x, const Tensor& weight,
                   const Tensor& y)
      : dnn_(dnn), precision_(precision), x_(x), weight_(weight), y_(y) {
    const auto size = [](const Tensor& tensor, int dim) { return static_cast<int>(tensor.size(dim)); };
    const auto describe = [&](cudnnTensorDescriptor_t& made, const Tensor& tensor) {
      Cudnn::require(dnn.create_tensor(&made), "cudnnCreateTensorDescriptor");
      Cudnn::require(dnn.set_tensor(made, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, size(tensor, 0), size(tensor, 1),
                                    size(tensor, 2), size(tensor, 3)),
                     "cudnnSetTensor4dDescriptor");
    };
    describe(x_layout_, x);
    describe(y_layout_, y);
    Cudnn::require(dnn.create_filter(&weight_layout_), "cudnnCreateFilterDescriptor");
    Cudnn::require(dnn.set_filter(weight_layout_, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, size(weight, 0), size(weight, 1),
                                  size(weight, 2), size(weight, 3)),
                   "cudnnSetFilter4dDescriptor");
    const auto padding = static_cast<int>(window.padding);
    const auto stride = static_cast<int>(window.stride);
    Cudnn::require(dnn.create_convolution(&convolution_), "cudnnCreateConvolutionDescriptor");
    Cudnn::require(dnn.set_convolution(convolution_, padding, padding, stride, stride, 1, 1, CUDNN_CROSS_CORRELATION,
                                       CUDNN_DATA_FLOAT),
                   "cudnnSetConvolution2dDescriptor");
    set_math(precision == Precision::tf32 ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH);
  }

  double forward_seconds() {
    const auto fastest = search<cudnnConvolutionFwdAlgoPerf_t>([&](int most, int* found, auto* results) {
      return dnn_.find_forward(dnn_.handle, x_layout_, in(x_), weight_layout_, in(weight_), convolution_, y_layout_,
                               out(y_), most, found, results, scratch<kConvScratch>(), kConvScratch);
    });
    return peer_seconds([&] {
      Cudnn::require(dnn_.forward(dnn_.handle, &kOne, x_layout_, in(x_), weight_layout_, in(weight_), convolution_,
                                  fastest.algo, scratch<kConvScratch>(), fastest.memory, &kZero, y_layout_, out(y_)),
                     "cudnnConvolutionForward");
    });
  }

  double grad_input_seconds() {
    const auto fastest = search<cudnnConvolutionBwdDataAlgoPerf_t>([&](int most, int* found, auto* results) {
      return dnn_.find_grad_input(dnn_.handle, weight_layout_, in(weight_), y_layout_, in(y_), convolution_, x_layout_,
                                  out(x_), most, found, results, scratch<kConvScratch>(), kConvScratch);
    });
    return peer_seconds([&] {
      Cudnn::require(dnn_.grad_input(dnn_.handle, &kOne, weight_layout_, in(weight_), y_layout_, in(y_), convolution_,
                                     fastest.algo, scratch<kConvScratch>(), fastest.memory, &kZero, x_layout_, out(x_)),
                     "cudnnConvolutionBackwardData");
    });
  }

  double grad_weight_seconds() {
    const auto fastest = search<cudnnConvolutionBwdFilterAlgoPerf_t>([&](int most, int* found, auto* results) {
      return dnn_.find_grad_weight(dnn_.handle, x_layout_, in(x_), y_layout_, in(y_), convolution_, weight_layout_,
                                   out(weight_), most, found, results, scratch<kConvScratch>(), kConvScratch);
    });
    return peer_seconds([&] {
      Cudnn::require(
          dnn_.grad_weight(dnn_.handle, &kOne, x_layout_, in(x_), y_layout_, in(y_), convolution_, fastest.algo,
                           scratch<kConvScratch>(), fastest.memory, &kZero, weight_layout_, out(weight_)),
          "cudnnConvolutionBackwardFilter");
    });
  }

 private:
  static constexpr float kOne = 1;
  static constexpr float kZero = 0;

  void set_math(cudnnMathType_t type) {
    Cudnn::require(dnn_.set_math(convolution_, type), "cudnnSetConvolutionMathType");
  }

  /// The fastest that cuDNN finds by trying.
  template <class Result, class Find>
  Result search(const Find& find_algorithms) {
    std::array<Result, 16> results{};
    int count = 0;
    Cudnn::require(find_algorithms(static_cast<int>(results.size()), &count, results.data()), "cudnnFindConvolution");
    for (int i = 0; i < count; ++i) {
      const Result& result = results[static_cast<std::size_t>(i)];
      if (result.status == CUDNN_STATUS_SUCCESS) {
        set_math(precision_ == Precision::tf32 ? result.mathType : CUDNN_FMA_MATH);
        return result;
      }
    }
    fail("cuDNN has no algorithm for this convolution");
  }

  const Cudnn& dnn_;
  Precision precision_;
  Tensor x_;
  Tensor weight_;
  Tensor y_;
  cudnnTensorDescriptor_t x_layout_ = nullptr;
  cudnnTensorDescriptor_t y_layout_ = nullptr;
  cudnnFilterDescriptor_t weight_layout_ = nullptr;
  cudnnConvolutionDescriptor_t convolution_ = nullptr;
};

}  // namespace

std::optional<double> cudnn_conv2d_seconds(Pass pass, Precision precision, const Window& window, const Tensor& x,
                                           const Tensor& weight, const Tensor& y) {
  if (cudnn() == nullptr) {
    return std::nullopt;
  }
  CudnnConvolution convolution(*cudnn(), precision, window, x, weight, y);
  switch (pass) {
    case Pass::forward:
      return convolution.forward_seconds();
    case Pass::grad_input:
      return convolution.grad_input_seconds();
    case Pass::grad_weight:
      return convolution.grad_weight_seconds();
  }
  return std::nullopt;
}

#else

namespace {
std::string cudnn_description() { return "built without cuDNN's headers"; }
}  // namespace

std::optional<double> cudnn_conv2d_seconds(Pass, Precision, const Window&, const Tensor&, const Tensor&,
                                           const Tensor&) {
  return std::nullopt;
}

#endif

std::string peers_description() { return cublas_description() + ", " + cudnn_description(); }

GpuFacts gpu_facts() {
  const auto attribute = [](cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, 0), "cudaDeviceGetAttribute");
    return value;
  };
  GpuFacts facts{.multiprocessors = attribute(cudaDevAttrMultiProcessorCount),
                 .clock_hz = 1e3 * attribute(cudaDevAttrClockRate),
                 .cache_bytes = attribute(cudaDevAttrL2CacheSize)};
  // Cores for float32 in a multiprocessor: CUDA programming guide, "Arithmetic instructions".
  const int capability =
      10 * attribute(cudaDevAttrComputeCapabilityMajor) + attribute(cudaDevAttrComputeCapabilityMinor);
  const int cores = capability <= 80 ? 64 : capability <= 121 ? 128 : 0;
  facts.fp32_rate = 2.0 * cores * facts.multiprocessors * facts.clock_hz;
  return facts;
}

}  // namespace stagecoach

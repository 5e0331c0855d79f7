# The toolchain file of the preset playground: emscripten's own, of Debian's and Ubuntu's package or of an installed SDK.
find_program(EM_CONFIG em-config REQUIRED)
execute_process(COMMAND ${EM_CONFIG} EMSCRIPTEN_ROOT
  OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
include(${root}/cmake/Modules/Platform/Emscripten.cmake)

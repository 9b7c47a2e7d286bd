# cmake -DOUTPUT=shipped.cc -DFOLDER=... -P embed.cmake: a source that holds the texts of both .layout files.
set(source "#include \"layout/shipped.h\"\n\nnamespace tesser::layout {\nnamespace {\n\n")
foreach(name operators tesser)
  file(READ "${FOLDER}/${name}.layout" text HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${text}")
  string(APPEND source "constexpr char k_${name}[] = {${bytes}0};\n")
endforeach()
string(APPEND source "\n}  // namespace\n\nstd::string_view measured_statements() { return k_operators; }\n"
  "std::string_view own_statements() { return k_tesser; }\n\n}  // namespace tesser::layout\n")
file(WRITE "${OUTPUT}" "${source}")

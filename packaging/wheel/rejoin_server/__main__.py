from rejoin_server import main

main()
